"""Tests who takes which part in a run on several machines."""

import json

from absl.testing import absltest
from absl.testing import parameterized

from agile_tf import config as config_lib
from agile_tf.cluster import roles

_JOBS = {'chief': ['a:1'], 'worker': ['b:2', 'c:2']}


def _tf_config(kind, index, jobs=None):
  return {'TF_CONFIG': json.dumps(
      {'cluster': jobs or _JOBS, 'task': {'type': kind, 'index': index}})}


class ClusterTest(parameterized.TestCase):

  def test_alone(self):
    self.assertEqual(
        roles.find(config_lib.Config(), {}), roles.Cluster((), 0))

  @parameterized.parameters(('chief', 0, 0), ('worker', 0, 1), ('worker', 1, 2))
  def test_tf_config(self, kind, index, task):
    self.assertEqual(
        roles.find(config_lib.Config(), _tf_config(kind, index)),
        roles.Cluster(('b:2', 'c:2'), task))

  def test_tf_config_of_a_chief_alone(self):
    self.assertEqual(
        roles.find(
            config_lib.Config(), _tf_config('master', 0, {'master': ['a:1']})),
        roles.Cluster((), 0))

  @parameterized.parameters('{}', '{"environment": "cloud"}')
  def test_tf_config_without_a_cluster(self, text):
    self.assertEqual(
        roles.find(config_lib.Config(), {'TF_CONFIG': text}),
        roles.Cluster((), 0))

  def test_by_hand(self):
    found = roles.find(
        config_lib.Config(cluster='b:2, [::1]:3', task=2), {})
    self.assertEqual(found, roles.Cluster(('b:2', '[::1]:3'), 2))
    self.assertEqual(found.address, '[::1]:3')

  @parameterized.parameters(
      (dict(task=1), {}, 'without --cluster'),
      (dict(cluster='b:2', task=2), {}, 'names 1 server[.]'),
      (dict(cluster='b'), {}, 'not an address'),
      (dict(cluster='b:0'), {}, 'not an address'),
      (dict(cluster='b:2,b:2'), {}, 'named twice'),
      (dict(cluster='b:2'), _tf_config('chief', 0), 'as well'),
      ({}, {'TF_CONFIG': '{'}, 'expected JSON'),
      ({}, {'TF_CONFIG': '[]'}, 'expected JSON'),
      ({}, _tf_config('chief', 0, {'chief': ['a:1'], 'worker': 'b:2'}),
       'of "worker" are not a list'),
      ({}, _tf_config('worker', 2), 'not in its cluster'),
      ({}, _tf_config('evaluator', 0), 'not in its cluster'),
      ({}, _tf_config('chief', 0, {'chief': ['a:1'], 'ps': ['b:1']}), '"ps"'),
      ({}, _tf_config('worker', 0, {'worker': ['a:1']}), 'one "chief"'),
  )
  def test_errors(self, changes, environment, words):
    with self.assertRaisesRegex(config_lib.ConfigError, words):
      roles.find(config_lib.Config(**changes), environment)

  def test_differences(self):
    self.assertEqual(roles.differences({'code': 'a'}, {'code': 'a'}), '')
    self.assertEqual(
        roles.differences({'code': 'a', 'TensorFlow': '2'}, {'code': 'b'}),
        'code b on the server and a on the chief, '
        'TensorFlow unknown on the server and 2 on the chief')


if __name__ == '__main__':
  absltest.main()
