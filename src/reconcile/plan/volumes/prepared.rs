//! Directories: the helper of a member's pod, and what came of it.

use jiff::SignedDuration;

use crate::identity::{DnsLabel, keys};
use crate::storage::{DATA_MISSING, Exit, Helper, WAY_OUT};
use crate::view::HelperState;

use super::{RETRY, StorageAction, Work, delete};

/// How long a preparation may take until its user hears of it.
const SLOW: SignedDuration = SignedDuration::from_secs(30);

impl Work<'_, '_> {
    /// Whether the member's directories are prepared on its node; sees to it that they will be.
    pub(super) fn prepared(&mut self, volumes: &[DnsLabel]) -> bool {
        let (Some(node), Some(namespace_uid)) = (self.node(), self.namespace_uid()) else {
            return false;
        };
        let now = self.observed.now;
        let Some(helper) = self.observed.view.storage().helper(&self.pod.uid) else {
            let helper = Helper {
                member_uid: self.pod.uid.clone(),
                namespace_uid: namespace_uid.to_owned(),
                ordinal: self.ordinal,
                node,
                volumes: volumes.to_vec(),
                owner: self.pod.template.needs.owner(self.settings),
                ran: self.ran(),
                data_lost: self.pod.data_lost,
            };
            self.act(StorageAction::CreateHelper(Box::new(helper)));
            return false;
        };
        if helper.terminating {
            return false;
        }
        // Prepared for where it was before, or without knowing that the data is lost.
        let outdated =
            matches!(helper.state, HelperState::Failed { .. }) && self.pod.data_lost && !helper.data_lost;
        if helper.node != node || outdated {
            delete(helper, self.plan);
            return false;
        }
        match &helper.state {
            HelperState::Done => true,
            HelperState::Busy(waits) => {
                let slow = helper.created.map_or(now, |created| created + SLOW);
                if now < slow {
                    self.plan.look_again(slow);
                    return false;
                }
                let why = waits
                    .as_ref()
                    .map(|waits| format!(" ({waits})"))
                    .unwrap_or_default();
                let message = format!(
                    "The directories of {} are not prepared yet: helper pod {} on node {node} has not ended{why}; \
                     see it in Flock's namespace",
                    self.pod.name, helper.name
                );
                self.tell("PreparationSlow", &message);
                false
            }
            HelperState::Failed { code, message, at } => {
                let due = at.or(helper.created).map_or(now, |at| at + RETRY);
                if now >= due {
                    delete(helper, self.plan);
                } else {
                    self.plan.look_again(due);
                }
                self.failed(&node, code.and_then(Exit::from_code), message);
                false
            }
        }
    }

    fn failed(&mut self, node: &str, exit: Option<Exit>, message: &str) {
        let (pod, namespace) = (&self.pod.name, self.namespace());
        let (reason, way_out) = match exit {
            Some(Exit::Blank) => (
                DATA_MISSING,
                format!(
                    "{WAY_OUT}flock release {} {} --data-lost --namespace {namespace} (or kubectl annotate pod {pod} -n {namespace} {}={})",
                    self.observed.key.flock,
                    self.ordinal,
                    keys::DATA_LOST,
                    self.pod.uid
                ),
            ),
            Some(Exit::Foreign) => ("ForeignData", String::new()),
            Some(Exit::Unsafe) => ("UnsafePath", String::new()),
            Some(Exit::Failed) | None => ("PreparationFailed", "; it is tried again".to_owned()),
        };
        let told = format!("{pod} is held on node {node}: {message}{way_out}");
        self.tell(reason, &told);
    }
}
