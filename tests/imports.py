"""Reads which modules of a package import which, without importing any.

`graph` is of a package's own modules; `imported` also has what comes from
elsewhere. A package's `__init__` goes by the package's name.
"""

import ast
from collections.abc import Mapping, Set
import graphlib
import pathlib


def _modules(package: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns the files of a package and its sub-packages by module."""
  modules = {}
  for path in sorted(package.rglob('*.py')):
    parts = path.relative_to(package.parent).with_suffix('').parts
    modules['.'.join(parts[:-1] if parts[-1] == '__init__' else parts)] = path
  return modules


def _names(path: pathlib.Path) -> set[str]:
  """Returns what a file imports, wherever in the file: 'a.b', or 'a.b.name'."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      if node.level:
        raise ValueError(f'{path}:{node.lineno}: a relative import. Name the '
                         'whole package.')
      names.update(f'{node.module}.{alias.name}' for alias in node.names)
  return names


def imported(package: str | pathlib.Path) -> dict[str, set[str]]:
  """Returns all that each module of a package imports.

  Args:
    package: The package's folder.

  Returns:
    By module (such as 'gridlu.world') the names after `import`; for `from a
    import b` that is 'a.b', whether or not b is a module.
  """
  return {module: _names(path)
          for module, path in _modules(pathlib.Path(package)).items()}


def graph(package: str | pathlib.Path) -> dict[str, set[str]]:
  """Returns which of its own modules each module of a package imports.

  Args:
    package: The package's folder.

  Returns:
    Modules by module (such as 'gridlu.world'). To import a name of an
    `__init__` is to import that; to import a module below it is not.
  """
  names = imported(package)
  return {
      module: {name if name in names else name.rpartition('.')[0]
               for name in found} & names.keys()
      for module, found in names.items()}


def check_no_circle(modules: Mapping[str, Set[str]]) -> None:
  """Checks that modules do not import each other in a circle.

  Args:
    modules: As `graph` returns it, or a part of that; imports of modules that
      are left out do not count.

  Raises:
    graphlib.CycleError: They do.
  """
  graphlib.TopologicalSorter({
      module: imported & modules.keys()
      for module, imported in modules.items()}).prepare()
