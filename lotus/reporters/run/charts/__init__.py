"""Charts of one loader, for the page and for lotus.plot."""
