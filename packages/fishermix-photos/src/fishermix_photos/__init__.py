"""Find your own photos with a sentence, offline: photo library, model, command line and page."""

from typing import TYPE_CHECKING

from fishermix import __version__ as __version__
from fishermix import export_lazily

if TYPE_CHECKING:
    from fishermix_photos.library import PhotoLibrary as PhotoLibrary
    from fishermix_photos.model.captioner.captioner import Captioner as Captioner
    from fishermix_photos.model.image_encoder import ImageEncoder as ImageEncoder
    from fishermix_photos.model.model import ImageTextModel as ImageTextModel
    from fishermix_photos.search.results import Query as Query

_MODULE_OF = {
    "Captioner": "model.captioner.captioner",
    "ImageEncoder": "model.image_encoder",
    "ImageTextModel": "model.model",
    "PhotoLibrary": "library",
    "Query": "search.results",
}
__all__ = ["Captioner", "ImageEncoder", "ImageTextModel", "PhotoLibrary", "Query", "__version__"]
__getattr__ = export_lazily(__name__, _MODULE_OF)


def find_commit() -> str | None:
    """The commit of the checkout that this package runs from, with "-dirty" if a package has changed.

    None for an installed package, or without git.
    """
    import subprocess
    from pathlib import Path

    root = Path(__file__).parents[4]  # packages/fishermix-photos/src/fishermix_photos is below it
    if not (root / ".git").exists():
        return None

    def ask(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = ask("diff", "--name-only", "HEAD", "--", "packages")
        return ask("rev-parse", "--short", "HEAD") + "-dirty" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None
