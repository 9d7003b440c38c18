"""A second CPU device, for the tests of runs on several."""

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices('CPU')[0],
    [tf.config.LogicalDeviceConfiguration()] * 2)
