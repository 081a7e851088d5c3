"""Shanghai AI Laboratory's Acme traces (Hu et al., NSDI'24; AcmeTrace), clusters Seren and Kalos: CSV.

Times carry their offset. There are no teams: the account is the user. `type`, such as training, becomes the label.
"""

from __future__ import annotations

from mirab.logs.helios import SHARED, read_table
from mirab.logs.intake import Intake
from mirab.logs.options import LoadOptions
from mirab.logs.source import Source

COLUMNS = (*SHARED, "type")


def read(source: Source, options: LoadOptions, intake: Intake) -> None:
    """Read a Seren or Kalos log into `intake`."""
    read_table(source, options, intake, "user", COLUMNS, "type")
