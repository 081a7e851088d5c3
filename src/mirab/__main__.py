"""`python -m mirab`."""

from mirab.cli.main import main

main()
