"""What is not supported, or over quota, raises an exception that says so, and at once. The token may use one sandbox."""
import os
import time

from e2b import (
    BuildException, RateLimitException, SandboxException, Sandbox, Secret, SecretException,
    Template, Volume, VolumeException,
)


def raises(kind, message, action):
    begun = time.monotonic()
    try:
        action()
    except kind as error:
        took = time.monotonic() - begun
        assert message in str(error), error
        # The package sends some requests again by itself, with pauses of seconds.
        assert took < 3, (took, error)
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def create(**options):
    return lambda: Sandbox.create(timeout=60, **options)


token = Secret.iam_token(audience="a.example", token_type="JWT-SVID")
for field, options in {
    "volumeMounts": {"volume_mounts": {"/data": "mine"}},
    "iam": {"iam": {"tokens": {"a": token}}},
    "autoPauseMemory": {"lifecycle": {"on_timeout": {"action": "pause", "mode": "filesystem"}}},
    "dnsServers": {"network": {"dns_servers": ["1.1.1.1"]}},
    "httpsPorts": {"network": {"https_ports": [8443]}},
    "rules": {"network": {"rules": {"a.example": [{"transform": {"headers": {"A": "b"}}}]}}},
}.items():
    error = raises(SandboxException, field, create(**options))
    assert error.status_code == 501, (field, error)
template = Template().from_image("debian")
raises(BuildException, "POST /v3/templates", lambda: Template.build(template, "mine"))
raises(VolumeException, "POST /volumes", lambda: Volume.create("mine"))
raises(VolumeException, "GET /volumes", Volume.list)
raises(SecretException, "POST /secrets", lambda: Secret.create("mine", "value"))

box = Sandbox.create(timeout=60)
raises(SandboxException, "no snapshots of memory", lambda: box.create_snapshot(mode="full"))
raises(SandboxException, "memory: false", lambda: box.pause(mode="filesystem"))
assert box.is_running()
# What `strict` asks for is always so.
assert box.pause(strict=True) and not box.is_running()
raises(SandboxException, "memory: false", lambda: box.connect(on_resume="reboot"))
assert box.connect().is_running()

raises(RateLimitException, "may use 1 sandboxes at once", create())
assert box.kill()
print("done", flush=True)
# At once: threads of the package can crash the interpreter while it ends, after all has been checked.
os._exit(0)
