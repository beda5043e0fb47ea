//! What a pod's volumes need: who must be able to write there, and how large they are to be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::identity::{Settings, Storage};

/// The fields of a security context that say who runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// `runAsUser`.
    pub user: Option<i64>,
    /// `runAsGroup`.
    pub group: Option<i64>,
    /// `fsGroup`; a pod's only.
    pub fs_group: Option<i64>,
    /// `runAsNonRoot`.
    pub non_root: Option<bool>,
}

/// What the volumes of a pod need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The user that all main containers run as, if they agree on one.
    pub uid: Option<u32>,
    /// Their group.
    pub gid: Option<u32>,
    /// The group that volumes belong to.
    pub fs_group: Option<u32>,
    /// Whether a container is known to run as another user than root.
    pub non_root: bool,
    /// The `sizeLimit` of each emptyDir that has one.
    pub sizes: BTreeMap<String, String>,
}

impl Needs {
    /// The needs of a pod with this security context, whose containers have these: main ones, then the others.
    pub fn of(
        pod: Security,
        main: impl IntoIterator<Item = Security>,
        init: impl IntoIterator<Item = Security>,
    ) -> Self {
        let within = |container: Security| Security {
            user: container.user.or(pod.user),
            group: container.group.or(pod.group),
            fs_group: None,
            non_root: container.non_root.or(pod.non_root),
        };
        let main: Vec<_> = main.into_iter().map(within).collect();
        let is_non_root = |security: &Security| {
            security
                .user
                .map_or(security.non_root == Some(true), |user| user != 0)
        };
        let agreed = |field: fn(&Security) -> Option<i64>, fallback: Option<i64>| {
            let first = main.first().map_or(fallback, field);
            let id = if main.iter().all(|security| field(security) == first) {
                first
            } else {
                fallback
            };
            id.and_then(|id| u32::try_from(id).ok())
        };
        Self {
            uid: agreed(|security| security.user, pod.user),
            gid: agreed(|security| security.group, pod.group),
            fs_group: pod.fs_group.and_then(|group| u32::try_from(group).ok()),
            non_root: main
                .iter()
                .copied()
                .chain(init.into_iter().map(within))
                .any(|s| is_non_root(&s)),
            sizes: BTreeMap::new(),
        }
    }

    /// The owner of fresh directories.
    pub fn owner(&self, settings: &Settings) -> DirectoryOwner {
        match settings.volume_owner {
            Some(owner) => DirectoryOwner {
                uid: Some(owner.uid),
                gid: Some(owner.gid),
                fs_group: self.fs_group,
            },
            None => DirectoryOwner {
                uid: self.uid,
                gid: self.gid,
                fs_group: self.fs_group,
            },
        }
    }
}

impl From<&PodSpec> for Needs {
    fn from(spec: &PodSpec) -> Self {
        let pod = spec
            .security_context
            .as_ref()
            .map_or_else(Security::default, |context| Security {
                user: context.run_as_user,
                group: context.run_as_group,
                fs_group: context.fs_group,
                non_root: context.run_as_non_root,
            });
        let container = |container: &Container| {
            container
                .security_context
                .as_ref()
                .map_or_else(Security::default, |context| Security {
                    user: context.run_as_user,
                    group: context.run_as_group,
                    fs_group: None,
                    non_root: context.run_as_non_root,
                })
        };
        let init = spec.init_containers.iter().flatten().map(container);
        let mut needs = Self::of(pod, spec.containers.iter().map(container), init);
        needs.sizes = spec
            .volumes
            .iter()
            .flatten()
            .filter_map(|volume| {
                let size = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
                Some((volume.name.clone(), size.0.clone()))
            })
            .collect();
        needs
    }
}

/// Who owns a member's directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryOwner {
    /// The user, if one is known.
    pub uid: Option<u32>,
    /// The group, if one is known.
    pub gid: Option<u32>,
    /// The group that shares them, which goes before `gid` and marks the directory set-group-id.
    pub fs_group: Option<u32>,
}

/// Whether directories on the node must be prepared before a member's first start: the kubelet makes those of
/// hostPath for root alone, and none at all for PersistentVolumes.
pub fn prepares(settings: &Settings, needs: &Needs) -> bool {
    !settings.volumes.is_empty()
        && match settings.storage {
            Storage::HostPath => prepares_each_start(settings, needs),
            Storage::LocalVolume => true,
            Storage::Claim => false,
        }
}

/// Whether they must be prepared before each start, so that every pod waits behind the gate for it.
pub fn prepares_each_start(settings: &Settings, needs: &Needs) -> bool {
    !settings.volumes.is_empty()
        && match settings.storage {
            Storage::HostPath => {
                settings.data_guard
                    || settings.volume_owner.is_some()
                    || needs.fs_group.is_some()
                    || needs.non_root
            }
            // A PersistentVolume is there only once its directory is, and then has its owner.
            Storage::LocalVolume => settings.data_guard,
            Storage::Claim => false,
        }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::identity::keys;

    fn needs(spec: &Value) -> Needs {
        Needs::from(&serde_json::from_value::<PodSpec>(spec.clone()).unwrap())
    }

    fn settings(annotations: &[(&str, &str)]) -> Settings {
        Settings::parse(|key| annotations.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)).unwrap()
    }

    #[rstest]
    #[case::nothing_said(json!({"containers": [{"name": "c"}]}), false, None)]
    #[case::root(json!({"securityContext": {"runAsUser": 0}, "containers": [{"name": "c"}]}), false, Some(0))]
    #[case::pod(json!({"securityContext": {"runAsUser": 42}, "containers": [{"name": "c"}]}), true, Some(42))]
    #[case::container(
        json!({"containers": [{"name": "c", "securityContext": {"runAsUser": 42}}]}), true, Some(42))]
    #[case::container_over_pod(
        json!({"securityContext": {"runAsUser": 42, "runAsNonRoot": false},
            "containers": [{"name": "c", "securityContext": {"runAsUser": 0}}]}), false, Some(0))]
    #[case::image_decides(
        json!({"securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c"}]}), true, None)]
    #[case::disagreement(
        json!({"containers": [{"name": "a", "securityContext": {"runAsUser": 1}},
            {"name": "b", "securityContext": {"runAsUser": 2}}]}), true, None)]
    #[case::root_init_container(
        json!({"securityContext": {"runAsUser": 42}, "containers": [{"name": "c"}],
            "initContainers": [{"name": "i", "securityContext": {"runAsUser": 0}}]}), true, Some(42))]
    #[case::non_root_init_container(
        json!({"containers": [{"name": "c"}],
            "initContainers": [{"name": "i", "securityContext": {"runAsUser": 7}}]}), true, None)]
    fn who_runs_is_read_from_pod_and_containers(
        #[case] spec: Value,
        #[case] non_root: bool,
        #[case] uid: Option<u32>,
    ) {
        let needs = needs(&spec);
        assert_eq!((needs.non_root, needs.uid), (non_root, uid));
    }

    #[rstest]
    #[case::root(&[], json!({}), false, false)]
    #[case::user(&[], json!({"runAsUser": 42}), true, true)]
    #[case::group(&[], json!({"fsGroup": 42}), true, true)]
    #[case::owner(&[(keys::VOLUME_OWNER, "1:1")], json!({}), true, true)]
    #[case::guard(&[(keys::DATA_GUARD, "true")], json!({}), true, true)]
    #[case::local(&[(keys::STORAGE, "localVolume")], json!({"fsGroup": 42}), true, false)]
    #[case::local_guarded(&[(keys::STORAGE, "localVolume"), (keys::DATA_GUARD, "true")], json!({}), true, true)]
    #[case::claim(&[(keys::STORAGE, "claim")], json!({"fsGroup": 42}), false, false)]
    fn directories_are_prepared_where_the_kubelet_would_not_do(
        #[case] annotations: &[(&str, &str)],
        #[case] security: Value,
        #[case] first: bool,
        #[case] each: bool,
    ) {
        let needs = needs(&json!({"securityContext": security, "containers": [{"name": "c"}]}));
        let with = settings(&[annotations, &[(keys::VOLUMES, "data")]].concat());
        assert_eq!(
            (prepares(&with, &needs), prepares_each_start(&with, &needs)),
            (first, each)
        );
        let without = settings(annotations);
        assert!(!prepares(&without, &needs) && !prepares_each_start(&without, &needs));
    }

    #[test]
    fn sizes_are_those_of_the_empty_dirs() {
        let needs = needs(&json!({"containers": [], "volumes": [
            {"name": "data", "emptyDir": {"sizeLimit": "5Gi"}}, {"name": "logs", "emptyDir": {}}, {"name": "x"}]}));
        assert_eq!(
            needs.sizes,
            BTreeMap::from([("data".to_owned(), "5Gi".to_owned())])
        );
    }
}
