"""The commands of hardmax-export: help, names, and failures of files in one sentence."""

import subprocess
import sys

from hardmax.formatting import describe_os_error


def test_error_of_a_file_has_no_number():
    assert describe_os_error(OSError(28, "No space left on device", "models/x")) == (
        "models/x: No space left on device"
    )
    assert describe_os_error(OSError(28, "No space left on device")) == "No space left on device"


def test_missing_file_is_one_sentence_before_torch_is_imported(tmp_path):
    command = ["train", str(tmp_path / "none.csv"), "--models-dir", str(tmp_path)]
    program = f"import sys; from model_export.cli import main; print(main({command}), 'torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "2 False\n"
    assert result.stderr.count("\n") == 1
    assert "No such file" in result.stderr
    assert "Errno" not in result.stderr
