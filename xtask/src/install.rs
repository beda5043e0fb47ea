//! Installs Flock as an administrator does: from `deploy/` and `webhook-config/`.

use std::path::PathBuf;

use anyhow::Result;
use flock_lab::Lab;

use crate::image::{self, root, target_dir};
use crate::wait;

/// Flock's image as an archive, built if anything has changed.
pub(crate) fn flock_image(quick: bool) -> Result<PathBuf> {
    let archive = target_dir().join("image/flock.tar");
    image::write(image::NAME, &archive, quick)?;
    Ok(archive)
}

/// Applies the manifests, the server first, and waits until the API server trusts it.
pub(crate) fn install(lab: &Lab) -> Result<()> {
    let (deploy, webhooks) = (root().join("deploy"), root().join("webhook-config"));
    lab.kubectl(&["apply".as_ref(), "-k".as_ref(), deploy.as_os_str()])?;
    lab.kubectl(&[
        "-n",
        "flock-system",
        "rollout",
        "status",
        "deployment/flock",
        "--timeout=180s",
    ])?;
    lab.kubectl(&["apply".as_ref(), "-k".as_ref(), webhooks.as_os_str()])?;
    wait::until("the CA in the webhook configuration", || {
        let path = "-o=jsonpath={.webhooks[0].clientConfig.caBundle}";
        let bundle = lab.kubectl(&["get", "mutatingwebhookconfiguration", "flock", path])?;
        Ok((!bundle.is_empty()).then_some(()))
    })
}
