"""Tests of mirab."""
