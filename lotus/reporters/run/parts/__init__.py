"""What several forms of the report show: lines, bars, columns, the verdict, the advice."""
