"""Pages of answers: one function per type of answer, made of the charts, players and tables of `halp.reports`."""
