//! Directories by handle. Every step takes one name, refuses to follow a symbolic link, and starts from a handle
//! that is held already, so that no exchange of a path on the way leads out of the root.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir as Entries, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use thiserror::Error;

/// The group's bits of a directory that is shared by fsGroup, as the kubelet sets them
/// (`k8s.io/kubernetes/pkg/volume/volume_linux.go`).
const SHARED_DIR: u32 = 0o2770;
const SHARED_FILE: u32 = 0o660;
/// Deeper trees are refused: each level holds a handle.
const DEEPEST: usize = 200;
const MAX_FILE: u64 = 64 * 1024;

/// Why the file system is not as it must be.
#[derive(Debug, Error)]
pub enum TreeError {
    /// A symbolic link or a file stands where a directory must be.
    #[error(
        "{0} is a symbolic link or no directory; nothing beneath the root is followed elsewhere: remove it on the node"
    )]
    Unsafe(String),
    /// A call failed.
    #[error("{path}: {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// Why it failed.
        source: Errno,
    },
    /// The tree is too deep to be handed to another group.
    #[error("{0} is too deep to be given to another group; do it by hand on the node (chgrp -R)")]
    TooDeep(String),
}

/// An open directory.
pub(super) struct Directory {
    fd: OwnedFd,
    /// For messages only.
    path: String,
}

const OPEN: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

impl Directory {
    pub(super) fn root(path: &Path) -> Result<Self, TreeError> {
        let shown = path.display().to_string();
        let fd =
            fs::openat(CWD, path, OPEN, Mode::empty()).map_err(|source| unsafe_or(source, "open", &shown))?;
        Ok(Self { fd, path: shown })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn beneath(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    fn failed(&self, action: &'static str, source: Errno) -> TreeError {
        TreeError::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }

    /// The directory `name` in it, if there is one.
    pub(super) fn open(&self, name: &str) -> Result<Option<Self>, TreeError> {
        let path = self.beneath(name);
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(TreeError::Unsafe(path));
        }
        match fs::openat(&self.fd, name, OPEN, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { fd, path })),
            Err(Errno::NOENT) => Ok(None),
            Err(source) => Err(unsafe_or(source, "open", &path)),
        }
    }

    /// The directory `name` in it, made if there is none.
    pub(super) fn ensure(&self, name: &str, mode: u32) -> Result<Self, TreeError> {
        if let Some(found) = self.open(name)? {
            return Ok(found);
        }
        match fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode)) {
            // Somebody else made it a moment ago: what it is, the next look tells.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(source) => {
                return Err(TreeError::Io {
                    action: "make the directory",
                    path: self.beneath(name),
                    source,
                });
            }
        }
        self.open(name)?
            .ok_or_else(|| TreeError::Unsafe(self.beneath(name)))
    }

    fn stat(&self) -> Result<Stat, TreeError> {
        fs::fstat(&self.fd).map_err(|source| self.failed("stat", source))
    }

    /// When an entry was added or removed last: `None` if there are entries now.
    pub(super) fn empty_since(&self) -> Result<Option<String>, TreeError> {
        for entry in self.entries()? {
            // What mkfs leaves in the root of a new disk is nobody's data.
            if entry.as_c_str() != c"lost+found" {
                return Ok(None);
            }
        }
        let stat = self.stat()?;
        Ok(Some(format!("{}.{:09}", stat.st_mtime, stat.st_mtime_nsec)))
    }

    fn entries(&self) -> Result<Vec<std::ffi::CString>, TreeError> {
        let mut names = Vec::new();
        for entry in Entries::read_from(&self.fd).map_err(|source| self.failed("list", source))? {
            let entry = entry.map_err(|source| self.failed("list", source))?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                names.push(entry.file_name().to_owned());
            }
        }
        Ok(names)
    }

    /// Sets owner, group and mode of the directory itself.
    pub(super) fn own(&self, uid: Option<u32>, gid: Option<u32>, mode: u32) -> Result<(), TreeError> {
        fs::fchown(&self.fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))
            .map_err(|source| self.failed("change the owner", source))?;
        // After the owner, since changing that takes bits away; and whatever the umask made of them.
        fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
            .map_err(|source| self.failed("change the mode", source))
    }

    /// Gives the tree to a group where its root does not have it yet, as `fsGroupChangePolicy: OnRootMismatch`.
    pub(super) fn share(&self, group: u32) -> Result<(), TreeError> {
        let stat = self.stat()?;
        if stat.st_gid == group && stat.st_mode & SHARED_DIR == SHARED_DIR {
            return Ok(());
        }
        self.share_tree(group, stat.st_dev, 0)
    }

    /// The root goes last: if this is interrupted, it is all done again.
    fn share_tree(&self, group: u32, device: u64, depth: usize) -> Result<(), TreeError> {
        if depth > DEEPEST {
            return Err(TreeError::TooDeep(self.path.clone()));
        }
        for name in self.entries()? {
            self.share_entry(&name, group, device, depth)?;
        }
        let stat = self.stat()?;
        self.own(None, Some(group), stat.st_mode & 0o7777 | SHARED_DIR)
    }

    fn share_entry(&self, name: &CStr, group: u32, device: u64, depth: usize) -> Result<(), TreeError> {
        let path = self.beneath(&name.to_string_lossy());
        let failed = |action, source| TreeError::Io {
            action,
            path: path.clone(),
            source,
        };
        let stat = match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(source) => return Err(failed("stat", source)),
        };
        // Another file system that is mounted here is not this member's.
        if stat.st_dev != device {
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let fd = fs::openat(&self.fd, name, OPEN, Mode::empty())
                    .map_err(|source| failed("open", source))?;
                Self { fd, path }.share_tree(group, device, depth + 1)
            }
            FileType::RegularFile => {
                let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::RDONLY;
                let fd = fs::openat(&self.fd, name, flags, Mode::empty())
                    .map_err(|source| failed("open", source))?;
                let now = fs::fstat(&fd).map_err(|source| failed("stat", source))?;
                // A file with a second name may be another's under that name.
                if FileType::from_raw_mode(now.st_mode) != FileType::RegularFile || now.st_nlink > 1 {
                    return Ok(());
                }
                fs::fchown(&fd, None, Some(Gid::from_raw(group)))
                    .map_err(|source| failed("change the owner", source))?;
                let mode = Mode::from_raw_mode(now.st_mode & 0o7777 | SHARED_FILE);
                fs::fchmod(&fd, mode).map_err(|source| failed("change the mode", source))
            }
            // The link itself, the socket itself; no mode goes with them.
            _ => fs::chownat(
                &self.fd,
                name,
                None,
                Some(Gid::from_raw(group)),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(|source| failed("change the owner", source)),
        }
    }

    /// A small regular file's content, if there is one.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, TreeError> {
        let path = self.beneath(name);
        let failed = |source| TreeError::Io {
            action: "read",
            path: path.clone(),
            source,
        };
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::RDONLY;
        let fd = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(TreeError::Unsafe(path)),
            Err(source) => return Err(failed(source)),
        };
        let stat = fs::fstat(&fd).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(TreeError::Unsafe(path));
        }
        let mut content = Vec::new();
        std::io::Read::read_to_end(
            &mut std::io::Read::take(std::fs::File::from(fd), MAX_FILE),
            &mut content,
        )
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Some(content))
    }

    /// Writes a small file, whole or not at all, and durably.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), TreeError> {
        let unfinished = format!("{name}.new");
        let failed = |source| TreeError::Io {
            action: "write",
            path: self.beneath(name),
            source,
        };
        match fs::unlinkat(&self.fd, &unfinished, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(source) => return Err(failed(source)),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
        let fd = fs::openat(&self.fd, &unfinished, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
        let mut file = std::fs::File::from(fd);
        let written = std::io::Write::write_all(&mut file, content).and_then(|()| file.sync_all());
        written.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        fs::renameat(&self.fd, &unfinished, &self.fd, name).map_err(failed)?;
        fs::fsync(&self.fd).map_err(failed)
    }
}

fn unsafe_or(source: Errno, action: &'static str, path: &str) -> TreeError {
    match source {
        Errno::LOOP | Errno::NOTDIR => TreeError::Unsafe(path.to_owned()),
        source => TreeError::Io {
            action,
            path: path.to_owned(),
            source,
        },
    }
}
