"""See, search, label and understand a collection of movements in the browser."""
