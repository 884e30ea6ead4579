"""From where the images of a MqttCluster may come: pure.

Who may write a MqttCluster decides what its pods run, with the Secrets that they mount. So an image is taken from the
repositories of the operator's own images, in any version, and from the registries that the operator is told of; there a
name such as `registry.example/team` stands for all below it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from flockmq_operator.resources.context import Context
from flockmq_operator.resources.custom_pod import images_of
from flockmq_operator.resources.labels import Component
from flockmq_operator.settings import EVERYTHING, Settings
from flockmq_operator.spec import PodTemplate

DEFAULT_REGISTRY, DEFAULT_FOLDER = "docker.io", "library"
"""What a container runtime puts before `name` and `somebody/name`."""


class Image(NamedTuple):
    field: str
    """Of the spec."""
    name: str
    components: tuple[Component, ...]
    """Whose pods run it."""


def images_refused(context: Context) -> Iterator[Image]:
    """Those that the operator doesn't allow."""
    for image in named_images(context):
        if not is_allowed(context.settings, image.name):
            yield image


def named_images(context: Context) -> Iterator[Image]:
    spec = context.spec
    if spec.image is not None:
        yield Image("spec.image", spec.image, ("core", "replicant", "backup"))
    if spec.redis.image is not None:
        yield Image("spec.redis.image", spec.redis.image, ("redis", "backup", "restore"))
    if spec.report.image is not None:
        yield Image("spec.report.image", spec.report.image, ("report",))
    templates: tuple[tuple[str, PodTemplate, Component], ...] = (
        ("spec.cores.podTemplate", spec.cores.pod_template, "core"),
        ("spec.replicants.podTemplate", spec.replicants.pod_template, "replicant"),
        ("spec.redis.podTemplate", spec.redis.pod_template, "redis"),
    )
    for field, template, component in templates:
        for below, image in images_of(template):
            yield Image(f"{field}.{below}", image, (component,))


def is_allowed(settings: Settings, image: str) -> bool:
    repository = repository_of(image)
    return any(
        registry == EVERYTHING or f"{repository}/".startswith(f"{registry.rstrip('/')}/")
        for registry in allowed(settings)
    )


def allowed(settings: Settings) -> list[str]:
    own = (settings.flockmq_broker_image, settings.flockmq_redis_image, settings.flockmq_analytics_image)
    return [*settings.image_registries, *map(repository_of, own)]


def repository_of(image: str) -> str:
    """The image's whole name, without its tag and its digest."""
    path = image.partition("@")[0].split("/")
    path[-1] = path[-1].partition(":")[0]
    if len(path) == 1:
        path.insert(0, DEFAULT_FOLDER)
        return "/".join((DEFAULT_REGISTRY, *path))
    names_registry = "." in path[0] or ":" in path[0] or path[0] == "localhost"
    return "/".join(path if names_registry else (DEFAULT_REGISTRY, *path))
