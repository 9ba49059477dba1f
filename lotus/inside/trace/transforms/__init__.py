"""Operations that are found in a data set, by what it is and by library."""
