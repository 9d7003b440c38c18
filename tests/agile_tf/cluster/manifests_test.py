"""Tests launch/cluster/ as far as that goes without a cluster."""

import os
import pathlib
import subprocess

from absl.testing import absltest
from absl.testing import parameterized
import yaml

from agile_tf import presets

_FOLDER = pathlib.Path('launch/cluster')
_SLURM = (_FOLDER / 'slurm.sh').resolve()

_SCONTROL = """#!/bin/bash
printf '%s\\n' a b c | head -n "$NODES"
"""
# Starts its tasks at once, as Slurm does, each with its number.
_SRUN = """#!/bin/bash
for argument; do
  case $argument in
    --ntasks=*) tasks=${argument#*=};;
    --*) ;;
    *) break;;
  esac
  shift
done
trap 'kill $(jobs -p)' TERM
for ((i = 0; i < tasks; i++)); do
  SLURM_PROCID=$i "$@" &
done
status=0
for job in $(jobs -p); do wait $job || status=$?; done
exit $status
"""
_PYTHON = """#!/bin/bash
echo "$@" >> calls
[[ $* == *--task=* ]] && exec sleep "$SERVERS"
until (($(wc -l < calls) == NODES)); do sleep 0.1; done
exit "$CHIEF"
"""


class SlurmTest(parameterized.TestCase):

  def _run(self, nodes, chief=0, servers=0):
    """Runs the script; returns its exit status and the programs it started."""
    folder = pathlib.Path(self.create_tempdir().full_path)
    for path, text in (
        ('bin/scontrol', _SCONTROL), ('bin/srun', _SRUN),
        ('.venv/bin/python', _PYTHON)):
      file = folder / path
      file.parent.mkdir(parents=True, exist_ok=True)
      file.write_text(text)
      file.chmod(0o755)
    result = subprocess.run(
        ['bash', _SLURM, '--flagfile=a b.flags'], cwd=folder, timeout=60,
        check=False, env={
            'PATH': f'{folder}/bin:{os.environ["PATH"]}', 'PORT': '77',
            'SLURM_JOB_NODELIST': '', 'NODES': str(nodes),
            'CHIEF': str(chief), 'SERVERS': str(servers)})
    return result.returncode, sorted(
        (folder / 'calls').read_text().splitlines())

  def test_every_node_has_its_part(self):
    launch = '-m agile_tf.launch --flagfile=a b.flags --cluster=b:77,c:77'
    self.assertEqual(self._run(nodes=3), (
        0, [launch, f'{launch} --task=1', f'{launch} --task=2']))

  def test_one_node_alone(self):
    self.assertEqual(self._run(nodes=1), (
        0, ['-m agile_tf.launch --flagfile=a b.flags --cluster=']))

  def test_servers_end_with_a_chief_that_fails(self):
    status, calls = self._run(nodes=3, chief=3, servers=1000)
    self.assertEqual(status, 3)
    self.assertLen(calls, 3)


class KubernetesTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    with open(_FOLDER / 'kubernetes.yaml', encoding='utf-8') as file:
      self.job, self.policy = yaml.safe_load_all(file)

  def test_the_job_has_what_the_operator_asks_for(self):
    self.assertEqual(
        (self.job['apiVersion'], self.job['kind']),
        ('kubeflow.org/v1', 'TFJob'))
    replicas = self.job['spec']['tfReplicaSpecs']
    self.assertEqual(replicas.keys(), {'Chief', 'Worker'})
    self.assertEqual(replicas['Chief']['replicas'], 1)
    for replica in replicas.values():
      container, = replica['template']['spec']['containers']
      self.assertEqual(container['name'], 'tensorflow')
      self.assertEqual(
          container['ports'], [{'name': 'tfjob-port', 'containerPort': 2222}])

  def test_all_have_the_same_command_and_the_chief_alone_the_disk(self):
    chief, server = (
        self.job['spec']['tfReplicaSpecs'][kind]['template']['spec']
        for kind in ('Chief', 'Worker'))
    command = server['containers'][0]['command']
    self.assertEqual(chief['containers'][0]['command'], command)
    self.assertEqual(command[:3], ['python', '-m', 'agile_tf.launch'])
    self.assertIn(command[3].removeprefix('--preset='), presets.names())
    mount, = chief['containers'][0]['volumeMounts']
    self.assertStartsWith(command[4], f'--run_dir={mount["mountPath"]}/')
    self.assertEqual([mount['name']], [v['name'] for v in chief['volumes']])
    self.assertNotIn('volumes', server)

  def test_only_the_jobs_pods_reach_its_servers(self):
    label = {'training.kubeflow.org/job-name': self.job['metadata']['name']}
    spec = self.policy['spec']
    self.assertEqual(self.policy['kind'], 'NetworkPolicy')
    self.assertEqual(spec['podSelector']['matchLabels'], label)
    rule, = spec['ingress']
    self.assertEqual(rule, {
        'from': [{'podSelector': {'matchLabels': label}}],
        'ports': [{'protocol': 'TCP', 'port': 2222}]})


if __name__ == '__main__':
  absltest.main()
