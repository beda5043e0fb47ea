//! The labels, annotations and gates that Flock reads and writes: the whole public vocabulary.

/// Label: joins the flock of that name in the pod's namespace.
pub const NAME: &str = "flock.dev/name";
/// Label, written by Flock: the member's ordinal.
pub const ORDINAL: &str = "flock.dev/ordinal";
/// Label, written by Flock: the ordinal under the name that StatefulSets use (KEP-4017).
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Annotation: the ordinals that a workload may hold, such as `0,2-`.
pub const ORDINALS: &str = "flock.dev/ordinals";
/// Annotation: names of the `emptyDir` volumes that become durable.
pub const VOLUMES: &str = "flock.dev/volumes";
/// Annotation: `hostPath`, `localVolume` or `claim`.
pub const STORAGE: &str = "flock.dev/storage";
/// Annotation: the StorageClass for `claim`.
pub const STORAGE_CLASS: &str = "flock.dev/storage-class";
/// Annotation: `Exclusive`, `Shared` or `None`.
pub const PIN: &str = "flock.dev/pin";
/// Annotation: the node of each ordinal, by hand.
pub const NODES: &str = "flock.dev/nodes";
/// Annotation: `Parallel` or `Ordered`.
pub const START: &str = "flock.dev/start";
/// Annotation: `Wait` or `Reassign`.
pub const ON_NODE_LOSS: &str = "flock.dev/on-node-loss";
/// Annotation: name of the governing Service.
pub const SERVICE: &str = "flock.dev/service";
/// Annotation: `uid:gid` that owns the member's directories.
pub const VOLUME_OWNER: &str = "flock.dev/volume-owner";
/// Annotation: `true` asks for the check that a member finds its own data.
pub const DATA_GUARD: &str = "flock.dev/data-guard";
/// Annotation on a waiting pod: its own uid lets it start without the data that it had, this once.
pub const DATA_LOST: &str = "flock.dev/data-lost";

/// Every annotation that a user may write on a template.
pub const TEMPLATE_ANNOTATIONS: [&str; 11] = [
    ORDINALS,
    VOLUMES,
    STORAGE,
    STORAGE_CLASS,
    PIN,
    NODES,
    START,
    ON_NODE_LOSS,
    SERVICE,
    VOLUME_OWNER,
    DATA_GUARD,
];

/// Annotation that Flock writes on a ReplicaSet to end its back-off: when it did so last.
pub const WOKEN_AT: &str = "flock.dev/woken-at";
/// Annotation that Flock writes on the governing Service: ordinal → node and machine.
pub const PLACES: &str = "flock.dev/places";
/// Label of claims and PersistentVolumes: the volume of the member's that they are.
pub const VOLUME: &str = "flock.dev/volume";
/// Label of PersistentVolumes: the namespace of the flock that they are for.
pub const NAMESPACE: &str = "flock.dev/namespace";
/// Annotation that Flock writes on a PersistentVolume it made: the node that its directory was prepared on.
pub const PREPARED_ON: &str = "flock.dev/prepared-on";
/// Annotation of a helper pod: the member that it prepares directories for, as `namespace/flock/ordinal`.
pub const PREPARES: &str = "flock.dev/prepares";
/// Label on objects that Flock made, so that they are told from a user's own.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub const MANAGER: &str = "flock";

/// Scheduling gate of a member whose place is not ready (KEP-3521).
pub const GATE: &str = "flock.dev/placement";

/// Annotation of mirror pods (`k8s.io/kubernetes/pkg/kubelet/types/pod_update.go`).
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation: order of scale-down (KEP-2255).
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Annotation of a Deployment's ReplicaSets: the Deployment's wanted number
/// (`k8s.io/kubernetes/pkg/controller/deployment/util/deployment_util.go`).
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation of a Deployment's ReplicaSets: the revision's number.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
