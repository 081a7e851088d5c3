"""The desk: what a person or program asks for, judged against the state, becomes facts and writes."""
