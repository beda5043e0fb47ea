//! The helper pod: what it may do is all written here, and nothing of it comes from a tenant but names that were
//! read as DNS labels, and numbers.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::identity::{DnsLabel, FlockKey, Ordinal, keys};

use super::needs::DirectoryOwner;

/// The value of the label `app.kubernetes.io/component` of helpers.
pub const COMPONENT: &str = "prepare";
/// What helpers' names begin with; the rest is the uid of the member's pod, so that there is one for each pod.
const PREFIX: &str = "prepare-";
/// Where the root is in the helper.
const MOUNT: &str = "/root-of-flock";
/// How long a helper may take. The kubelet ends it then, and it is tried again.
const DEADLINE_SECONDS: i64 = 300;

/// The reason of the event of a member whose data is missing.
pub const DATA_MISSING: &str = "DataMissing";
/// What in that event's message goes before the commands for those who give the data up.
pub const WAY_OUT: &str = ". To give that data up and start without it: ";

/// How a helper ended, as the exit code of `flock prepare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A directory that should hold data does not.
    Blank,
    /// A directory is another member's.
    Foreign,
    /// A path beneath the root is not made of plain directories.
    Unsafe,
    /// The file system refused.
    Failed,
}

impl Exit {
    const ALL: [Self; 4] = [Self::Blank, Self::Foreign, Self::Unsafe, Self::Failed];

    /// The exit code. Small numbers are taken by panics and shells.
    pub fn code(self) -> u8 {
        match self {
            Self::Blank => 20,
            Self::Foreign => 21,
            Self::Unsafe => 22,
            Self::Failed => 23,
        }
    }

    /// Reads an exit code back.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|exit| i32::from(exit.code()) == code)
    }
}

/// What an administrator configured for helpers.
#[derive(Clone, Debug)]
pub struct HelperConfig {
    /// Flock's namespace.
    pub namespace: String,
    /// The directory on every node that members' directories are beneath.
    pub root: PathBuf,
}

/// What helpers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperImage {
    /// The image's name.
    pub name: String,
    /// The Secrets that it is pulled with.
    pub pull_secrets: Vec<String>,
}

impl HelperImage {
    /// An image that is pulled without a Secret.
    pub fn public(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            pull_secrets: Vec::new(),
        }
    }
}

/// What a helper is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// The uid of the member's pod.
    pub member_uid: String,
    /// The uid of the member's namespace.
    pub namespace_uid: String,
    /// The member's ordinal.
    pub ordinal: Ordinal,
    /// The member's node.
    pub node: String,
    /// Its volumes.
    pub volumes: Vec<DnsLabel>,
    /// Who owns them.
    pub owner: DirectoryOwner,
    /// Whether the member is known to have run on this node before.
    pub ran: bool,
    /// Whether its user said that its data is not coming back.
    pub data_lost: bool,
}

impl Helper {
    /// The pod's name.
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.member_uid)
    }

    fn args(&self, key: &FlockKey) -> Vec<String> {
        let mut args = vec![
            "prepare".to_owned(),
            format!("--root={MOUNT}"),
            format!("--namespace={}", key.namespace),
            format!("--namespace-uid={}", self.namespace_uid),
            format!("--flock={}", key.flock),
            format!("--ordinal={}", self.ordinal),
        ];
        args.extend(self.volumes.iter().map(|volume| format!("--volume={volume}")));
        let owner = [
            ("uid", self.owner.uid),
            ("gid", self.owner.gid),
            ("fs-group", self.owner.fs_group),
        ];
        args.extend(
            owner
                .iter()
                .filter_map(|(flag, id)| Some(format!("--{flag}={}", (*id)?))),
        );
        args.extend(self.ran.then(|| "--ran".to_owned()));
        args.extend(self.data_lost.then(|| "--data-lost".to_owned()));
        args
    }

    /// The pod. The node is named outright: the member's place is decided, and a node that takes no new pods
    /// may well be where its data is.
    pub fn pod(
        &self,
        key: &FlockKey,
        config: &HelperConfig,
        image: &HelperImage,
    ) -> Result<Pod, serde_json::Error> {
        // A group of its own, or the kernel drops the set-group-id bit from a directory of that group.
        let groups: Vec<_> = self.owner.fs_group.into_iter().collect();
        let pull_secrets: Vec<_> = image
            .pull_secrets
            .iter()
            .map(|name| json!({ "name": name }))
            .collect();
        serde_json::from_value(json!({
            "metadata": {
                "name": self.name(),
                "namespace": config.namespace,
                "labels": { "app.kubernetes.io/name": "flock", "app.kubernetes.io/component": COMPONENT },
                "annotations": { keys::PREPARES: format!("{}/{}/{}", key.namespace, key.flock, self.ordinal) },
            },
            "spec": {
                "nodeName": self.node,
                "restartPolicy": "Never",
                "activeDeadlineSeconds": DEADLINE_SECONDS,
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "imagePullSecrets": pull_secrets,
                // The least that a pod can have; it resolves nothing.
                "dnsPolicy": "Default",
                "tolerations": [{ "operator": "Exists" }],
                "securityContext": {
                    "runAsUser": 0,
                    "runAsGroup": 0,
                    "supplementalGroups": groups,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": COMPONENT,
                    "image": image.name,
                    "imagePullPolicy": "IfNotPresent",
                    "args": self.args(key),
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "resources": {
                        "requests": { "cpu": "5m", "memory": "16Mi" },
                        "limits": { "cpu": "500m", "memory": "64Mi" },
                    },
                    "securityContext": {
                        "privileged": false,
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": { "drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"] },
                    },
                    "volumeMounts": [{ "name": "root", "mountPath": MOUNT }],
                }],
                "volumes": [{ "name": "root", "hostPath": { "path": config.root, "type": "DirectoryOrCreate" } }],
            },
        }))
    }
}

/// The member that a pod is the helper of: its flock and ordinal, and the uid of its pod.
pub fn member_of_helper(pod: &Pod) -> Option<(FlockKey, Ordinal, String)> {
    let uid = pod.metadata.name.as_deref()?.strip_prefix(PREFIX)?;
    let mut member = pod
        .metadata
        .annotations
        .as_ref()?
        .get(keys::PREPARES)?
        .splitn(3, '/');
    let key = FlockKey::parse(member.next()?, member.next()?).ok()?;
    Some((key, member.next()?.parse().ok()?, uid.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper() -> (FlockKey, Helper, HelperConfig) {
        let key = FlockKey::parse("default", "db").unwrap();
        let helper = Helper {
            member_uid: "11111111-2222-3333-4444-555555555555".into(),
            namespace_uid: "u-1".into(),
            ordinal: Ordinal::new(3).unwrap(),
            node: "node-1".into(),
            volumes: vec![DnsLabel::parse("data").unwrap(), DnsLabel::parse("wal").unwrap()],
            owner: DirectoryOwner {
                uid: Some(1000),
                gid: None,
                fs_group: Some(2000),
            },
            ran: true,
            data_lost: false,
        };
        let config = HelperConfig {
            namespace: "flock-system".into(),
            root: "/var/lib/flock".into(),
        };
        (key, helper, config)
    }

    #[test]
    fn the_helper_is_told_everything_by_its_arguments() {
        let (key, helper, config) = helper();
        let image = HelperImage {
            name: "registry.example/flock:1".into(),
            pull_secrets: vec!["pull".into()],
        };
        let pod = helper.pod(&key, &config, &image).unwrap();
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.containers[0].image.as_ref(), Some(&image.name));
        assert_eq!(spec.image_pull_secrets.as_ref().unwrap()[0].name, "pull");
        assert_eq!(
            spec.containers[0].args.as_ref().unwrap().join(" "),
            "prepare --root=/root-of-flock --namespace=default --namespace-uid=u-1 --flock=db --ordinal=3 \
             --volume=data --volume=wal --uid=1000 --fs-group=2000 --ran"
        );
        assert_eq!(spec.node_name.as_deref(), Some("node-1"));
        let (read, ordinal, uid) = member_of_helper(&pod).unwrap();
        assert_eq!((read, ordinal, uid), (key, helper.ordinal, helper.member_uid));
    }

    #[test]
    fn the_helper_has_one_mount_no_credential_and_three_capabilities() {
        let (key, helper, config) = helper();
        let image = HelperImage::public("flock:dev");
        let spec = helper.pod(&key, &config, &image).unwrap().spec.unwrap();
        let paths: Vec<_> = spec
            .volumes
            .unwrap()
            .into_iter()
            .map(|volume| volume.host_path.unwrap().path)
            .collect();
        assert_eq!(paths, ["/var/lib/flock"]);
        assert_eq!(spec.automount_service_account_token, Some(false));
        let context = spec.containers[0].security_context.as_ref().unwrap();
        let capabilities = context.capabilities.as_ref().unwrap();
        assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
        assert_eq!(
            capabilities.add.as_ref().unwrap().join(" "),
            "CHOWN DAC_OVERRIDE FOWNER"
        );
        assert_eq!(context.allow_privilege_escalation, Some(false));
        let resources = spec.containers[0].resources.as_ref().unwrap();
        assert!(resources.requests.is_some() && resources.limits.is_some());
    }

    #[test]
    fn exit_codes_are_read_back() {
        for exit in Exit::ALL {
            assert_eq!(Exit::from_code(exit.code().into()), Some(exit));
        }
        assert_eq!(Exit::from_code(1), None);
    }
}
