//! After a relist: what is gone without a word.

use std::collections::BTreeSet;

use super::{Source, View, WorkloadKind};
use crate::identity::FlockKey;

impl View {
    /// Names of the pods, uids of the workloads and so on that a source holds, for a relist to compare with.
    pub(crate) fn forget_unseen(&mut self, source: Source, seen: &BTreeSet<String>) -> Vec<FlockKey> {
        let mut concerned = Vec::new();
        match source {
            Source::Pods => {
                let gone: Vec<_> = self
                    .flocks
                    .iter()
                    .flat_map(|(key, flock)| flock.pods().values().map(move |pod| (key.clone(), pod)))
                    .filter(|(_, pod)| !seen.contains(&pod.uid))
                    .map(|(key, pod)| (key, pod.name.clone(), pod.uid.clone()))
                    .collect();
                for (key, name, uid) in gone {
                    concerned.extend(self.drop_pod(&key, &name, &uid, false));
                }
            }
            Source::ReplicaSets | Source::ReplicationControllers => {
                let kind = if source == Source::ReplicaSets {
                    WorkloadKind::ReplicaSet
                } else {
                    WorkloadKind::ReplicationController
                };
                let gone: Vec<_> = self
                    .flocks
                    .iter()
                    .flat_map(|(key, flock)| flock.workloads().values().map(move |w| (key.clone(), w)))
                    .filter(|(_, w)| w.kind == kind && w.labelled && !seen.contains(&w.uid))
                    .map(|(key, w)| (key, w.uid.clone()))
                    .collect();
                for (key, uid) in gone {
                    concerned.extend(self.delete_workload(&key, &uid));
                }
            }
            Source::Nodes => {
                let gone: Vec<_> = self
                    .nodes()
                    .values()
                    .filter(|node| !seen.contains(&node.uid))
                    .map(|node| node.name.clone())
                    .collect();
                for name in gone {
                    concerned.extend(self.delete_node(&name));
                }
            }
            Source::Namespaces => {
                let gone: Vec<_> = self
                    .namespaces
                    .values()
                    .filter(|ns| !seen.contains(&ns.uid))
                    .map(|ns| ns.name.clone())
                    .collect();
                for name in gone {
                    concerned.extend(self.delete_namespace(&name));
                }
            }
            Source::Helpers | Source::Claims | Source::Volumes => {
                concerned.extend(self.storage.forget_unseen(source, seen));
            }
            Source::Services => {
                let gone: Vec<_> = self
                    .services
                    .all()
                    .filter(|service| !seen.contains(&service.uid))
                    .map(|service| {
                        (
                            service.namespace.clone(),
                            service.name.clone(),
                            service.uid.clone(),
                        )
                    })
                    .collect();
                for (namespace, name, uid) in gone {
                    concerned.extend(self.delete_service(&namespace, &name, &uid));
                }
            }
        }
        concerned
    }
}
