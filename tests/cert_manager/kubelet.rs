//! A Secret in a directory, as the kubelet mounts it.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// A kubelet takes up to a minute.
const POLL: Duration = Duration::from_millis(50);

/// Mounts the Secret `name` in `directory` from now on.
pub async fn mount(secrets: Api<Secret>, name: &str, directory: PathBuf) {
    let mut mounted = None;
    loop {
        if let Ok(Some(secret)) = secrets.get_opt(name).await
            && secret.metadata.resource_version != mounted
        {
            write(&secret, &directory).expect("the directory can be written");
            mounted = secret.metadata.resource_version;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// In one step for whoever reads: a link is swapped.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/volume/util/atomic_writer.go>
fn write(secret: &Secret, directory: &Path) -> io::Result<()> {
    let link = directory.join("..data");
    let old = fs::read_link(&link).ok();
    let generation = format!(
        "..{}",
        secret.metadata.resource_version.as_deref().unwrap_or_default()
    );
    let target = directory.join(&generation);
    fs::create_dir_all(&target)?;
    for (file, bytes) in secret.data.iter().flatten() {
        fs::write(target.join(file), &bytes.0)?;
        if !directory.join(file).is_symlink() {
            symlink(Path::new("..data").join(file), directory.join(file))?;
        }
    }
    symlink(&generation, directory.join("..data_tmp"))?;
    fs::rename(directory.join("..data_tmp"), &link)?;
    old.map_or(Ok(()), |old| fs::remove_dir_all(directory.join(old)))
}
