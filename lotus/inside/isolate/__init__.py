"""Operations of a pipeline run by themselves, for `lotus map build`."""
