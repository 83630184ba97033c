//! Requests of RocketMQ that this broker refuses, and why: the remark says what is missing.

use wire::RequestCode;

use crate::error::BrokerError;

/// The refusal of a code that no handler serves.
pub(crate) fn refusal(code: RequestCode) -> BrokerError {
    match why(code) {
        Some(why) => BrokerError::Unserved {
            code: code.code(),
            why,
        },
        None => BrokerError::UnknownCode(code.code()),
    }
}

fn why(code: RequestCode) -> Option<&'static str> {
    Some(match code {
        RequestCode::QueryMessage => "messages have no index of keys and ids yet",
        RequestCode::EndTransaction
        | RequestCode::CheckTransactionState
        | RequestCode::ResumeCheckHalfMessage => "transactions are not built yet",
        RequestCode::GetTimerCheckPoint
        | RequestCode::GetTimerMetrics
        | RequestCode::SwitchTimerEngine
        | RequestCode::RecallMessage => "delivery at an arbitrary time is not built yet",
        RequestCode::GetBrokerHaStatus
        | RequestCode::ExchangeBrokerHaInfo
        | RequestCode::GetBrokerEpochCache
        | RequestCode::NotifyBrokerRoleChanged
        | RequestCode::NotifyMinBrokerIdChange => {
            "replication is not built yet, this broker is alone"
        }
        RequestCode::ControllerAlterSyncStateSet
        | RequestCode::ControllerElectMaster
        | RequestCode::ControllerRegisterBroker
        | RequestCode::ControllerGetReplicaInfo
        | RequestCode::ControllerGetMetadataInfo
        | RequestCode::ControllerGetSyncStateData
        | RequestCode::UpdateControllerConfig
        | RequestCode::GetControllerConfig
        | RequestCode::CleanBrokerData
        | RequestCode::ControllerGetNextBrokerId
        | RequestCode::ControllerApplyBrokerId => "a broker is no controller",
        RequestCode::AuthCreateUser
        | RequestCode::AuthUpdateUser
        | RequestCode::AuthDeleteUser
        | RequestCode::AuthGetUser
        | RequestCode::AuthListUser
        | RequestCode::AuthCreateAcl
        | RequestCode::AuthUpdateAcl
        | RequestCode::AuthDeleteAcl
        | RequestCode::AuthGetAcl
        | RequestCode::AuthListAcl
        | RequestCode::UpdateAndCreateAclConfig
        | RequestCode::DeleteAclConfig
        | RequestCode::GetBrokerClusterAclInfo
        | RequestCode::UpdateGlobalWhiteAddrsConfig
        | RequestCode::GetBrokerClusterAclConfig => {
            "access control of the native port is not built yet"
        }
        RequestCode::UpdateColdDataFlowCtrConfig
        | RequestCode::RemoveColdDataFlowCtrConfig
        | RequestCode::GetColdDataFlowCtrInfo
        | RequestCode::SetCommitlogReadMode => {
            "reads of old messages have a limit of their own here"
        }
        RequestCode::CheckRocksdbCqWriteProgress
        | RequestCode::ExportRocksdbConfigToJson
        | RequestCode::PopRollback => "nothing is kept in RocksDB here",
        RequestCode::UpdateAndCreateStaticTopic => {
            "topics with queues mapped to brokers are not supported"
        }
        RequestCode::AddBroker | RequestCode::RemoveBroker => "there is no broker container",
        _ => return None,
    })
}
