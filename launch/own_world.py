"""agile_tf/own_world.py by its name in release 0.1.0, for runs made with it."""

from agile_tf import own_world

make_world = own_world.make_world

if __name__ == '__main__':
  own_world.start()
