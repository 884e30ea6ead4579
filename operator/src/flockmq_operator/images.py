"""From where the images of a MqttCluster may come: pure.

Who may write a MqttCluster decides what its pods run, with the Secrets that they mount. So an image is taken from the
repositories of the operator's own images, in any version, and from the registries that the operator is told of; there a
name such as `registry.example/team` stands for all below it.
"""

from collections.abc import Iterator

from flockmq_operator.resources.context import Context
from flockmq_operator.settings import EVERYTHING, Settings

DEFAULT_REGISTRY, DEFAULT_FOLDER = "docker.io", "library"
"""What a container runtime puts before `name` and `somebody/name`."""


def images_refused(context: Context) -> Iterator[tuple[str, str]]:
    """(field of the spec, image) where the operator doesn't allow it."""
    for field, image in named_images(context):
        if image is not None and not is_allowed(context.settings, image):
            yield field, image


def named_images(context: Context) -> Iterator[tuple[str, str | None]]:
    yield "spec.image", context.spec.image
    yield "spec.redis.image", context.spec.redis.image
    yield "spec.report.image", context.spec.report.image


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
