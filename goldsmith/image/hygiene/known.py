"""Programs that run with another's rights, of packages that are known to bring them: Debian's and Ubuntu's, and those
of GPU clusters. Anything else is a finding; images/NAME/image.yml can name more (hygiene.privileged).

Path → (package, whose rights: `u:` and the owner for setuid, `g:` and the group for setgid).
"""

from __future__ import annotations

SETUID: dict[str, tuple[str, str]] = {
    # a base system
    "/usr/bin/chfn": ("passwd", "u:root"),
    "/usr/bin/chsh": ("passwd", "u:root"),
    "/usr/bin/gpasswd": ("passwd", "u:root"),
    "/usr/bin/passwd": ("passwd", "u:root"),
    "/usr/bin/chage": ("passwd", "g:shadow"),
    "/usr/bin/expiry": ("passwd", "g:shadow"),
    "/usr/bin/newgrp": ("login", "u:root"),
    "/usr/bin/su": ("util-linux", "u:root"),
    "/usr/bin/mount": ("mount", "u:root"),
    "/usr/bin/umount": ("mount", "u:root"),
    "/usr/bin/wall": ("bsdutils", "g:tty"),
    "/usr/bin/write": ("bsdutils", "g:tty"),
    "/usr/bin/write.ul": ("bsdextrautils", "g:tty"),
    "/usr/bin/sudo": ("sudo", "u:root"),
    "/usr/lib/cargo/bin/sudo": ("sudo-rs", "u:root"),
    "/usr/lib/cargo/bin/su": ("sudo-rs", "u:root"),
    "/usr/sbin/unix_chkpwd": ("libpam-modules-bin", "g:shadow"),
    "/usr/sbin/pam_extrausers_chkpwd": ("libpam-modules-bin", "g:shadow"),
    "/usr/sbin/pam-tmpdir-helper": ("libpam-tmpdir", "u:root"),
    "/usr/bin/ssh-agent": ("openssh-client", "g:_ssh"),
    "/usr/lib/openssh/ssh-keysign": ("openssh-client", "u:root"),
    "/usr/lib/dbus-1.0/dbus-daemon-launch-helper": ("dbus-system-bus-common,dbus", "u:root"),
    "/usr/lib/polkit-1/polkit-agent-helper-1": ("polkitd", "u:root"),
    "/usr/bin/pkexec": ("pkexec", "u:root"),
    "/usr/lib/snapd/snap-confine": ("snapd", "u:root"),
    "/usr/bin/crontab": ("cron", "g:crontab"),
    "/usr/bin/at": ("at", "u:daemon"),
    "/usr/bin/dotlockfile": ("liblockfile-bin", "g:mail"),
    "/usr/bin/plocate": ("plocate", "g:plocate"),
    "/usr/bin/screen": ("screen", "g:utmp"),
    "/usr/bin/fusermount": ("fuse", "u:root"),
    "/usr/bin/fusermount3": ("fuse3", "u:root"),
    "/usr/bin/newuidmap": ("uidmap", "u:root"),
    "/usr/bin/newgidmap": ("uidmap", "u:root"),
    "/usr/lib/x86_64-linux-gnu/utempter/utempter": ("libutempter0", "g:utmp"),
    "/usr/lib/aarch64-linux-gnu/utempter/utempter": ("libutempter0", "g:utmp"),
    "/usr/sbin/exim4": ("exim4-daemon-light", "u:root"),
    "/usr/sbin/postdrop": ("postfix", "g:postdrop"),
    "/usr/sbin/postqueue": ("postfix", "g:postdrop"),
    # storage, the GPU, containers
    "/usr/sbin/mount.nfs": ("nfs-common", "u:root"),
    "/usr/sbin/mount.cifs": ("cifs-utils", "u:root"),
    "/usr/bin/ntfs-3g": ("ntfs-3g", "u:root"),
    "/usr/bin/nvidia-modprobe": ("nvidia-modprobe", "u:root"),
    "/usr/libexec/apptainer/bin/starter-suid": ("apptainer-suid", "u:root"),
}

# Path → the package whose program has capabilities.
CAPABILITIES: dict[str, str] = {
    "/usr/bin/ping": "iputils-ping",
    "/usr/bin/arping": "iputils-arping",
    "/usr/bin/clockdiff": "iputils-clockdiff",
    "/usr/bin/mtr-packet": "mtr-tiny,mtr",
    "/usr/bin/dumpcap": "wireshark-common",
    "/usr/bin/newuidmap": "uidmap",
    "/usr/bin/newgidmap": "uidmap",
    "/usr/lib/snapd/snap-confine": "snapd",
    "/usr/bin/enroot-mksquashovlfs": "enroot+caps",
    "/usr/bin/enroot-aufs2ovlfs": "enroot+caps",
    "/usr/lib/x86_64-linux-gnu/gstreamer1.0/gstreamer-1.0/gst-ptp-helper": "libgstreamer1.0-0",
    "/usr/lib/aarch64-linux-gnu/gstreamer1.0/gstreamer-1.0/gst-ptp-helper": "libgstreamer1.0-0",
}
