"""How the tables come from each released form to the next."""
