Feature: UC-0268: Retry Webhook Delivery with Exponential Backoff and Dead Letter

  # S1: Failed attempt 1 sets 30-second next_retry_at
  Scenario: First delivery failure schedules 30-second retry
    Given a webhook_deliveries row with status "pending" and attempt_count 0
    And the target_url returns a 500 response
    When the WebhookRouter processes this row
    Then the row is updated with status "failed", attempt_count 1
    And next_retry_at is approximately 30 seconds from now
    And error_detail contains the failure reason

  # S2: Fifth failure transitions row to dead and broadcasts DLQ event
  Scenario: Fifth consecutive delivery failure marks row dead and emits WebhookDLQEvent
    Given a webhook_deliveries row with status "failed" and attempt_count 4
    And the target_url returns a 500 response
    When the WebhookRouter processes this row
    Then the row is updated with status "dead" and attempt_count 5
    And a WebhookDLQEvent is broadcast on the "gateway:webhooks" PubSub topic
    And no next_retry_at is set
