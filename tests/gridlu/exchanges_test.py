"""Tests for gridlu.exchanges, against a ground truth of one board at a time."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from gridlu import exchanges
from gridlu import language
from gridlu import tasks
from gridlu import world


def _kinds(blocks):
  """Returns what is on a board, as sorted (cell, shape, colour)."""
  return [(cell, *world.shape_and_color(code))
          for cell, code in enumerate(blocks.reshape(-1)) if code]


class ExchangesTest(parameterized.TestCase):

  @parameterized.parameters('relations', 'arrangements', 'crowded')
  def test_no_exchanged_state_satisfies_its_instruction(self, name):
    task = tasks.find(name)
    made = exchanges.exchanges(task, task.instructions(), count=200)
    for exchanged in made.values():
      for i, text in enumerate(exchanged.instructions):
        state = world.State(*(x[i] for x in exchanged.states))
        self.assertFalse(tasks.satisfied(text, state), text)

  @parameterized.parameters(
      ('red, green', 'red', 'green'),
      ('circle, triangle', 'circle', 'triangle'))
  def test_undoing_an_exchange_on_the_board_gives_goal_states(
      self, name, first, second):
    task = tasks.find('relations')
    exchanged = exchanges.exchanges(
        task, task.instructions(), count=200)[name]
    other = {first: second, second: first}
    self.assertGreater(len(exchanged.instructions), 100)
    for i, text in enumerate(exchanged.instructions):
      blocks = np.zeros(world.NUM_CELLS, np.int32)
      for cell, *words in _kinds(exchanged.states.blocks[i]):
        blocks[cell] = world.block(*(other.get(word, word) for word in words))
      state = world.State(
          blocks.reshape(world.SIZE, world.SIZE), exchanged.states.agent[i],
          exchanged.states.carrying[i])
      self.assertTrue(tasks.satisfied(text, state), text)

  @parameterized.parameters('direction', 'roles')
  def test_undoing_an_exchange_in_the_instruction_gives_goal_states(
      self, name):
    task = tasks.find('relations')
    exchanged = exchanges.exchanges(
        task, task.instructions(), count=200)[name]
    self.assertGreater(len(exchanged.instructions), 100)
    words = {'NorthFrom': 'SouthFrom', 'EastFrom': 'WestFrom'}
    words |= {value: key for key, value in words.items()}
    for i, text in enumerate(exchanged.instructions):
      instruction = language.parse(text)
      before = (
          language.Relation(
              words[instruction.word], instruction.left, instruction.right)
          if name == 'direction' else language.Relation(
              instruction.word, instruction.right, instruction.left))
      state = world.State(*(x[i] for x in exchanged.states))
      self.assertTrue(tasks.satisfied(before, state), text)

  def test_instructions_that_are_not_given_do_not_occur(self):
    given = [language.parse("NorthFrom(AGENT, Color('red', SCENE))")]
    made = exchanges.exchanges(tasks.find('relations'), given, count=50)
    self.assertNotIn('direction', made)
    self.assertEqual(
        {text for exchanged in made.values()
         for text in exchanged.instructions}, {str(given[0])})
    # A board without red blocks is no goal state; shapes do not matter here.
    self.assertEqual(made.keys(), {'red, green', 'red, blue'})


if __name__ == '__main__':
  absltest.main()
