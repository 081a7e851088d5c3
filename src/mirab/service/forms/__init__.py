"""What goes over the wire: requests with their limits, and answers. The OpenAPI document is made from these.

Durations are strings with units (``15m``), instants ISO 8601 in UTC (``2026-03-01T12:00:00Z``), amounts of charge in
GPU-hours. A job's own words keep the names that they have in `mirab.model.records`.
"""
