"""The peers, one file each: how it is had, and its documented settings for speed.

None keeps anything on disk, all allow anonymous clients, and none limits a client's queue more than it must.
"""

from typing import Final

from flockbench.brokers import Broker
from flockbench.peers import aedes, amqtt, hivemq, mochi, mosquitto, nats, rabbitmq, rmqtt, rumqttd

PEERS: Final = (
    Broker("mosquitto", "Mosquitto 2.0", mosquitto.install),
    Broker("mosquitto-new", "Mosquitto 2.1", mosquitto.install_newest),
    Broker("nats", "NATS", nats.install),
    Broker("mochi", "mochi-mqtt", mochi.install),
    Broker("rmqtt", "rmqtt", rmqtt.install),
    Broker("rumqttd", "rumqttd", rumqttd.install),
    Broker("hivemq", "HiveMQ CE", hivemq.install),
    Broker("rabbitmq", "RabbitMQ", rabbitmq.install),
    Broker("aedes", "aedes", aedes.install),
    Broker("amqtt", "amqtt", amqtt.install),
)
"""Columns of the table, from left to right."""
