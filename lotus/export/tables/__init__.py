"""Tables, for spreadsheets and data frames."""
