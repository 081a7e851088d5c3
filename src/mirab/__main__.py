"""`python -m mirab`."""

import sys

try:
    from mirab.cli.main import main
except ImportError as error:
    from mirab.cli.missing import told

    sentence = told(error)
    if sentence is None:
        raise
    sys.exit(f"mirab: {sentence}.")

main()
