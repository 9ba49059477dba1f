"""The programs that start the ranks of a job, by the names that users type."""

# These are in Python and stay the parents of their ranks.
OF_PYTHON = ("torchrun", "accelerate", "deepspeed")
LAUNCHERS = (*OF_PYTHON, "horovodrun", "mpirun", "mpiexec", "srun")
