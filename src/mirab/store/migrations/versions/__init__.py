"""One revision for each released form; a released one is never edited."""
