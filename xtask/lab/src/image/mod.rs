//! Container images without a container engine: an OCI archive of one layer, from files that are at hand.
//!
//! The same input makes the same bytes: entries have no time, no owner but root, and the order they were
//! added in.

mod stock;

use std::fs::{self, File};
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::digest;

pub use stock::{BUSYBOX_IMAGE, ETCD_IMAGE, PAUSE_IMAGE, busybox, etcd, pause};

/// One thing in the image's file system.
#[derive(Debug, Clone)]
enum Entry {
    Dir { mode: u32 },
    File { content: Content, mode: u32 },
    Symlink { target: String },
}

#[derive(Debug, Clone)]
enum Content {
    Bytes(Vec<u8>),
    Path(PathBuf),
}

/// An image that is being put together.
///
/// ```
/// let image = flock_lab::image::Image::new("example.com/hello:1")
///     .dir("tmp", 0o1777)
///     .text("etc/greeting", "hello\n")
///     .entrypoint(["/bin/hello"])
///     .user("65532:65532")
///     .env("GREETING", "/etc/greeting");
/// let archive = image.archive()?;
/// # anyhow::Ok(())
/// ```
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    entries: Vec<(String, Entry)>,
    entrypoint: Vec<String>,
    env: Vec<String>,
    user: Option<String>,
    labels: serde_json::Map<String, Value>,
    compressed: bool,
}

impl Image {
    /// An empty image with a full name, such as `registry.k8s.io/pause:3.10`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            entries: Vec::new(),
            entrypoint: Vec::new(),
            env: vec!["PATH=/bin:/usr/bin".to_owned()],
            user: None,
            labels: serde_json::Map::new(),
            compressed: false,
        }
    }

    /// The same image under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The image's full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn add(mut self, path: &str, entry: Entry) -> Self {
        self.entries
            .push((path.trim_start_matches('/').to_owned(), entry));
        self
    }

    /// Adds a folder; parents of files that are not added this way are made by the container runtime.
    #[must_use]
    pub fn dir(self, path: &str, mode: u32) -> Self {
        self.add(path, Entry::Dir { mode })
    }

    /// Adds a file of this machine, which may be executed.
    #[must_use]
    pub fn program(self, path: &str, from: impl Into<PathBuf>) -> Self {
        self.add(
            path,
            Entry::File {
                content: Content::Path(from.into()),
                mode: 0o755,
            },
        )
    }

    /// Adds a file that holds `text`.
    #[must_use]
    pub fn text(self, path: &str, text: &str) -> Self {
        self.add(
            path,
            Entry::File {
                content: Content::Bytes(text.into()),
                mode: 0o644,
            },
        )
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.add(
            path,
            Entry::Symlink {
                target: target.to_owned(),
            },
        )
    }

    /// Sets what runs when the pod names no command.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets who runs it, such as `65532:65532`; without, it is root.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push(format!("{name}={value}"));
        self
    }

    /// Sets a label of the image, such as `org.opencontainers.image.version`.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.into());
        self
    }

    /// Compresses the layer, for an image that goes over a network.
    #[must_use]
    pub fn compressed(mut self) -> Self {
        self.compressed = true;
        self
    }

    /// The archive's bytes.
    pub fn archive(&self) -> Result<Vec<u8>> {
        let layer = self.layer()?;
        let diff_id = digest_of(&layer);
        let (layer, layer_type) = if self.compressed {
            let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
            gzip.write_all(&layer)?;
            (gzip.finish()?, "application/vnd.oci.image.layer.v1.tar+gzip")
        } else {
            (layer, "application/vnd.oci.image.layer.v1.tar")
        };
        let config = serde_json::to_vec(&self.config(&diff_id))?;
        let config_type = "application/vnd.oci.image.config.v1+json";
        let manifest_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": descriptor(config_type, &config),
            "layers": [descriptor(layer_type, &layer)],
        }))?;
        let mut described = descriptor(manifest_type, &manifest);
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        // The first is how containerd learns the name, the second how other tools do.
        described["annotations"] = json!({"io.containerd.image.name": full_name(&self.name), "org.opencontainers.image.ref.name": tag});
        let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [described]}))?;

        let mut archive = Builder::new(Vec::new());
        append_file(
            &mut archive,
            "oci-layout",
            br#"{"imageLayoutVersion":"1.0.0"}"#,
            0o644,
        )?;
        append_file(&mut archive, "index.json", &index, 0o644)?;
        for blob in [&config, &manifest, &layer] {
            append_file(
                &mut archive,
                &format!("blobs/sha256/{}", digest::hex(blob)),
                blob,
                0o644,
            )?;
        }
        archive
            .into_inner()
            .context("the image's archive could not be finished")
    }

    /// Writes the archive to `path`, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failure = || format!("image {} can't be written to {}", self.name, path.display());
        let archive = self.archive().with_context(failure)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(failure)?;
        }
        let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
        File::create(&unfinished)
            .and_then(|mut file| file.write_all(&archive))
            .and_then(|()| fs::rename(&unfinished, path))
            .with_context(failure)
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut layer = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            match entry {
                Entry::Dir { mode } => append(&mut layer, path, EntryType::Directory, *mode, &[])?,
                Entry::File {
                    content: Content::Bytes(bytes),
                    mode,
                } => append_file(&mut layer, path, bytes, *mode)?,
                Entry::File {
                    content: Content::Path(from),
                    mode,
                } => {
                    let bytes = fs::read(from).with_context(|| {
                        format!(
                            "{} is to go into image {} and can't be read",
                            from.display(),
                            self.name
                        )
                    })?;
                    append_file(&mut layer, path, &bytes, *mode)?;
                }
                Entry::Symlink { target } => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    layer.append_link(&mut header, path, target)?;
                }
            }
        }
        layer
            .into_inner()
            .context("an image's layer could not be finished")
    }

    fn config(&self, diff_id: &str) -> Value {
        let mut run = json!({"Entrypoint": self.entrypoint, "Env": self.env, "Labels": self.labels});
        if let Some(user) = &self.user {
            run["User"] = user.as_str().into();
        }
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        })
    }
}

/// What registries call this machine's processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", digest::hex(bytes))
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len()})
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn append(tar: &mut Builder<Vec<u8>>, path: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> Result<()> {
    let mut header = header(kind, mode, bytes.len());
    tar.append_data(&mut header, path, Cursor::new(bytes))
        .with_context(|| format!("{path} can't go into an archive"))
}

fn append_file(tar: &mut Builder<Vec<u8>>, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    append(tar, path, EntryType::Regular, mode, bytes)
}

/// The name that `flock:dev` in a pod stands for: of the default registry, as every container runtime has it
/// (`github.com/distribution/reference`, `ParseDockerRef`).
fn full_name(name: &str) -> String {
    match name.split_once('/') {
        None => format!("docker.io/library/{name}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
    }
}

#[cfg(test)]
mod tests;
