"""Numbers that change linearly with the policy steps."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Linear:
  """A number that goes from `first` to `last` in `steps` policy steps."""
  first: float
  last: float
  steps: int  # With 0, it is `last` from the beginning.

  def __call__(self, step: int) -> float:
    """Returns its value at a policy step."""
    if step >= self.steps:
      return self.last
    return self.first + (self.last - self.first) * step / self.steps
