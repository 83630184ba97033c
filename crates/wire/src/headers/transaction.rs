//! END_TRANSACTION 37 and CHECK_TRANSACTION_STATE 39.

/// `commitOrRollback`: the producer does not know yet.
pub const UNKNOWN: i32 = 0;
/// `commitOrRollback`: commit.
pub const COMMIT: i32 = crate::message::flags::TRANSACTION_COMMIT;
/// `commitOrRollback`: roll back.
pub const ROLLBACK: i32 = crate::message::flags::TRANSACTION_ROLLBACK;

super::header! {
    /// END_TRANSACTION 37, one-way.
    EndTransactionRequest {
        /// Topic; older clients leave it out.
        topic: Option<String> = "topic",
        /// Group.
        producer_group: String = "producerGroup",
        /// Queue offset of the half message.
        tran_state_table_offset: i64 = "tranStateTableOffset",
        /// Commit-log offset of the half message.
        commit_log_offset: i64 = "commitLogOffset",
        /// [`COMMIT`], [`ROLLBACK`] or [`UNKNOWN`].
        commit_or_rollback: i32 = "commitOrRollback",
        /// Answers a check.
        from_transaction_check: bool = "fromTransactionCheck" false,
        /// UNIQ_KEY.
        msg_id: String = "msgId",
        /// Transaction id.
        transaction_id: Option<String> = "transactionId",
    }
}

super::header! {
    /// CHECK_TRANSACTION_STATE 39, from the broker to a producer; the body is the half message.
    CheckTransactionStateRequest {
        /// Topic of the half message.
        topic: Option<String> = "topic",
        /// Queue offset of the half message.
        tran_state_table_offset: i64 = "tranStateTableOffset",
        /// Commit-log offset of the half message.
        commit_log_offset: i64 = "commitLogOffset",
        /// UNIQ_KEY.
        msg_id: Option<String> = "msgId",
        /// UNIQ_KEY.
        transaction_id: Option<String> = "transactionId",
        /// Offset message id of the half message.
        offset_msg_id: Option<String> = "offsetMsgId",
        /// Broker.
        broker_name: Option<String> = "bname",
    }
}
