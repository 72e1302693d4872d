"""How right the milliseconds are: measurements read from many tools' files, predictions beside them, and what they say
together."""
