"""What `jax.numpy` has, by numpy."""

from numpy import *  # noqa: F403
