"""The suite `shapes`: programs whose shapes change from call to call. cases.py is the table."""
