//! How Flock was set up, as its Deployment says.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};

/// The names and settings that other checks need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Flock's namespace.
    pub namespace: String,
    /// Its Service.
    pub service: String,
    /// Its ServiceAccount.
    pub account: String,
    /// The directory that members' directories are beneath.
    pub root: String,
    /// The Secret of cert-manager's leaf, where the certificates are cert-manager's.
    pub leaf: Option<String>,
}

impl Setup {
    /// What the Deployment says; what it does not, and all where it cannot be seen, is as in `deploy/`.
    pub fn of(namespace: &str, deployment: Option<&Deployment>) -> Self {
        let pod = deployment
            .and_then(|deployment| deployment.spec.as_ref()?.template.spec.clone())
            .unwrap_or_default();
        let container = pod.containers.first().cloned().unwrap_or_default();
        let setting = |flag: &str, variable: &str, default: &str| {
            argument(&container, flag)
                .or_else(|| environment(&container, variable))
                .unwrap_or(default)
                .to_owned()
        };
        let certificates = setting("--certificates", "FLOCK_CERTIFICATES", "self-signed");
        let directory = setting("--certificate-dir", "FLOCK_CERTIFICATE_DIR", "/certificates");
        Self {
            namespace: namespace.to_owned(),
            service: setting("--service-name", "FLOCK_SERVICE_NAME", "flock"),
            account: pod.service_account_name.clone().unwrap_or_else(|| "flock".into()),
            root: setting("--host-path-root", "FLOCK_HOST_PATH_ROOT", "/var/lib/flock")
                .trim_end_matches('/')
                .to_owned(),
            leaf: (certificates == "cert-manager").then(|| {
                mounted_secret(&pod, &container, &directory).unwrap_or_else(|| "flock-serving".into())
            }),
        }
    }
}

/// The value of `--flag=value`, or of `--flag value`.
fn argument<'a>(container: &'a Container, flag: &str) -> Option<&'a str> {
    let args = container.args.as_deref().unwrap_or_default();
    args.iter().enumerate().find_map(|(index, arg)| {
        let rest = arg.strip_prefix(flag)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => args.get(index + 1).map(String::as_str),
            None => None,
        }
    })
}

fn environment<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let all = container.env.as_deref().unwrap_or_default();
    all.iter()
        .find(|variable| variable.name == name)?
        .value
        .as_deref()
}

fn mounted_secret(pod: &PodSpec, container: &Container, directory: &str) -> Option<String> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let mount = mounts.iter().find(|mount| mount.mount_path == directory)?;
    let volume = pod
        .volumes
        .iter()
        .flatten()
        .find(|volume| volume.name == mount.name)?;
    volume.secret.as_ref()?.secret_name.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(container: &serde_json::Value) -> Deployment {
        serde_json::from_value(json!({ "metadata": {}, "spec": {
            "selector": {},
            "template": { "spec": {
                "serviceAccountName": "shepherd", "containers": [container],
                "volumes": [{ "name": "certificate", "secret": { "secretName": "leaf" } }],
            } },
        } }))
        .unwrap()
    }

    #[test]
    fn without_a_deployment_all_is_as_in_the_manifests() {
        let setup = Setup::of("flock-system", None);
        let expected = Setup {
            namespace: "flock-system".into(),
            service: "flock".into(),
            account: "flock".into(),
            root: "/var/lib/flock".into(),
            leaf: None,
        };
        assert_eq!(setup, expected);
    }

    #[test]
    fn settings_are_read_from_arguments_and_variables() {
        let deployment = deployment(&json!({
            "name": "flock",
            "args": ["serve", "--certificates=cert-manager", "--host-path-root", "/data/flock/"],
            "env": [{ "name": "FLOCK_SERVICE_NAME", "value": "herd" }],
            "volumeMounts": [{ "name": "certificate", "mountPath": "/certificates" }],
        }));
        let setup = Setup::of("x", Some(&deployment));
        assert_eq!(
            (
                &*setup.service,
                &*setup.account,
                &*setup.root,
                setup.leaf.as_deref()
            ),
            ("herd", "shepherd", "/data/flock", Some("leaf"))
        );
    }
}
