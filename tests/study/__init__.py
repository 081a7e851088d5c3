"""Tests of the numbers of a study, on facts and plans written by hand."""
