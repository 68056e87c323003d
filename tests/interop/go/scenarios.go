// The scenarios of ../java-grpc/GrpcScenarios.java with stock's client for Go, which recalls no messages.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	invisible = 60 * time.Second
	limit     = 180 * time.Second
	timeout   = 30 * time.Second
	large     = 3 << 20
)

var output sync.Mutex

func note(words ...string) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}

func failed(scenario string, err error) {
	note(scenario, "failed", strings.Join(strings.Fields(err.Error()), " "))
}

type scenarios struct {
	endpoint string
	prefix   string
	producer rmq.Producer
}

func (s *scenarios) topic(scenario string) string {
	return s.prefix + "-" + scenario
}

func (s *scenarios) run(names []string) error {
	each := map[string]func() error{
		"tags": s.tags, "sql": s.sql, "large": s.large, "invisible": s.invisible,
		"push": s.push, "fifo": s.fifo, "delay": s.delay, "transaction": s.transaction,
		"mixed": s.mixed,
	}
	topics := []string{}
	for _, scenario := range names {
		topics = append(topics, s.topic(scenario))
	}
	checker := &rmq.TransactionChecker{Check: func(message *rmq.MessageView) rmq.TransactionResolution {
		note("transaction", "asked", string(message.GetBody()))
		if string(message.GetBody()) == "rolled back" {
			return rmq.ROLLBACK
		}
		return rmq.COMMIT
	}}
	producer, err := rmq.NewProducer(s.config(""), rmq.WithTopics(topics...), rmq.WithTransactionChecker(checker))
	if err != nil {
		return err
	}
	producer.SetRequestTimeout(timeout)
	s.producer = producer
	if err := producer.Start(); err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, scenario := range names {
		running.Add(1)
		go func() {
			defer running.Done()
			if err := each[scenario](); err != nil {
				failed(scenario, err)
			}
		}()
	}
	running.Wait()
	return nil
}

func (s *scenarios) tags() error {
	consumer, err := s.consumer("tags", rmq.NewFilterExpression("wanted || also"))
	if err != nil {
		return err
	}
	for _, tag := range []string{"wanted", "unwanted", "also"} {
		message := s.message("tags", "body "+tag)
		message.SetTag(tag)
		message.SetKeys("k-1", "k-2")
		message.AddProperty("color", "red")
		sent, err := s.producer.Send(context.Background(), message)
		if err != nil {
			return err
		}
		note("tags", "sent", sent[0].MessageID)
	}
	return receive(consumer, func(message *rmq.MessageView) (bool, error) {
		keys := append([]string{}, message.GetKeys()...)
		sort.Strings(keys)
		note("tags", "received", message.GetMessageId(), string(message.GetBody()), *message.GetTag(),
			strings.Join(keys, ","), message.GetProperties()["color"], attempt(message))
		return *message.GetTag() == "also", consumer.Ack(context.Background(), message)
	})
}

func (s *scenarios) sql() error {
	expression := rmq.NewFilterExpressionWithType("price > 10 AND color = 'red'", rmq.SQL92)
	consumer, err := s.consumer("sql", expression)
	if err != nil {
		return err
	}
	for _, each := range [][]string{{"red", "9"}, {"blue", "20"}, {"red", "20"}} {
		message := s.message("sql", each[0]+" "+each[1])
		message.AddProperty("color", each[0])
		message.AddProperty("price", each[1])
		if err := s.send(message); err != nil {
			return err
		}
	}
	return receive(consumer, func(message *rmq.MessageView) (bool, error) {
		note("sql", "received", string(message.GetBody()))
		return true, consumer.Ack(context.Background(), message)
	})
}

func (s *scenarios) large() error {
	body := make([]byte, large)
	for place := range body {
		body[place] = byte(place*31 + place/1000)
	}
	consumer, err := s.consumer("large", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	if err := s.send(&rmq.Message{Topic: s.topic("large"), Body: body}); err != nil {
		return err
	}
	return receive(consumer, func(message *rmq.MessageView) (bool, error) {
		found := "other"
		if bytes.Equal(message.GetBody(), body) {
			found = "same"
		}
		note("large", found, strconv.Itoa(len(message.GetBody())))
		return true, consumer.Ack(context.Background(), message)
	})
}

func (s *scenarios) invisible() error {
	consumer, err := s.consumer("invisible", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	if err := s.send(s.message("invisible", "shown again")); err != nil {
		return err
	}
	return receive(consumer, func(message *rmq.MessageView) (bool, error) {
		note("invisible", "received", string(message.GetBody()), attempt(message))
		if message.GetDeliveryAttempt() == 1 {
			return false, consumer.ChangeInvisibleDuration(message, time.Second)
		}
		return true, consumer.Ack(context.Background(), message)
	})
}

func (s *scenarios) push() error {
	seen := &lines{}
	err := s.pushConsumer("push", func(message *rmq.MessageView) rmq.ConsumerResult {
		line := string(message.GetBody()) + " " + attempt(message)
		note("push", "consumed", string(message.GetBody()), attempt(message))
		seen.add(line)
		if strings.HasPrefix(line, "never") || line == "once 1" {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	for _, body := range []string{"good", "once", "never"} {
		if err := s.send(s.message("push", body)); err != nil {
			return err
		}
	}
	return seen.await("good 1", "once 2", "never 2")
}

func (s *scenarios) fifo() error {
	seen := &lines{}
	err := s.pushConsumer("fifo", func(message *rmq.MessageView) rmq.ConsumerResult {
		line := string(message.GetBody()) + " " + attempt(message)
		note("fifo", "consumed", *message.GetMessageGroup(), string(message.GetBody()), attempt(message))
		seen.add(line)
		if strings.HasPrefix(line, "b-never") || line == "a-1 1" {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	if err != nil {
		return err
	}
	for _, body := range []string{"a-0", "b-never", "a-1", "b-next", "a-2"} {
		message := s.message("fifo", body)
		message.SetMessageGroup(body[:1])
		if err := s.send(message); err != nil {
			return err
		}
	}
	return seen.await("a-2 1", "b-never 2", "b-next 1")
}

func (s *scenarios) delay() error {
	consumer, err := s.consumer("delay", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	due := time.Now().Add(3 * time.Second)
	message := s.message("delay", "late")
	message.SetDelayTimestamp(due)
	if err := s.send(message); err != nil {
		return err
	}
	return receive(consumer, func(message *rmq.MessageView) (bool, error) {
		late := time.Since(due).Milliseconds()
		note("delay", "received", string(message.GetBody()), strconv.FormatInt(late, 10))
		return true, consumer.Ack(context.Background(), message)
	})
}

func (s *scenarios) transaction() error {
	consumer, err := s.consumer("transaction", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	decide := map[string]func(rmq.Transaction) error{
		"committed":   rmq.Transaction.Commit,
		"rolled back": rmq.Transaction.RollBack,
		"orphan":      func(rmq.Transaction) error { return nil },
	}
	for _, body := range []string{"committed", "rolled back", "orphan"} {
		transaction := s.producer.BeginTransaction()
		message := s.message("transaction", body)
		if _, err := s.producer.SendWithTransaction(context.Background(), message, transaction); err != nil {
			return err
		}
		if err := decide[body](transaction); err != nil {
			return err
		}
	}
	return receive(consumer, func(message *rmq.MessageView) (bool, error) {
		body := string(message.GetBody())
		note("transaction", "received", body)
		return body == "orphan", consumer.Ack(context.Background(), message)
	})
}

func (s *scenarios) mixed() error {
	consumer, err := s.consumer("mixed", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	due := time.Now().Add(2 * time.Second)
	ordered, late := s.message("mixed", "in order"), s.message("mixed", "late")
	ordered.SetMessageGroup("group")
	late.SetDelayTimestamp(due)
	for _, message := range []*rmq.Message{s.message("mixed", "plain"), ordered, late} {
		if err := s.send(message); err != nil {
			return err
		}
	}
	transaction := s.producer.BeginTransaction()
	message := s.message("mixed", "committed")
	if _, err := s.producer.SendWithTransaction(context.Background(), message, transaction); err != nil {
		return err
	}
	if err := transaction.Commit(); err != nil {
		return err
	}
	seen := map[string]bool{}
	return receive(consumer, func(message *rmq.MessageView) (bool, error) {
		group := "-"
		if message.GetMessageGroup() != nil {
			group = *message.GetMessageGroup()
		}
		note("mixed", "received", string(message.GetBody()), group,
			strconv.FormatInt(time.Since(due).Milliseconds(), 10))
		seen[string(message.GetBody())] = true
		return len(seen) == 4, consumer.Ack(context.Background(), message)
	})
}

func (s *scenarios) config(scenario string) *rmq.Config {
	group := ""
	if scenario != "" {
		group = s.topic(scenario)
	}
	return &rmq.Config{
		Endpoint: s.endpoint, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{},
	}
}

func (s *scenarios) message(scenario string, body string) *rmq.Message {
	return &rmq.Message{Topic: s.topic(scenario), Body: []byte(body)}
}

func (s *scenarios) send(message *rmq.Message) error {
	_, err := s.producer.Send(context.Background(), message)
	return err
}

func (s *scenarios) consumer(scenario string, expression *rmq.FilterExpression) (rmq.SimpleConsumer, error) {
	subscriptions := map[string]*rmq.FilterExpression{s.topic(scenario): expression}
	consumer, err := rmq.NewSimpleConsumer(s.config(scenario),
		rmq.WithSimpleAwaitDuration(5*time.Second), rmq.WithSimpleSubscriptionExpressions(subscriptions))
	if err != nil {
		return nil, err
	}
	consumer.SetRequestTimeout(timeout)
	return consumer, consumer.Start()
}

func (s *scenarios) pushConsumer(scenario string, consume func(*rmq.MessageView) rmq.ConsumerResult) error {
	subscriptions := map[string]*rmq.FilterExpression{s.topic(scenario): rmq.SUB_ALL}
	consumer, err := rmq.NewPushConsumer(s.config(scenario),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(subscriptions),
		rmq.WithPushConsumptionThreadCount(4),
		rmq.WithPushMaxCacheMessageCount(1024),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	if err != nil {
		return err
	}
	consumer.SetRequestTimeout(timeout)
	return consumer.Start()
}

func attempt(message *rmq.MessageView) string {
	return strconv.Itoa(int(message.GetDeliveryAttempt()))
}

// Receives until a message is the last one.
func receive(consumer rmq.SimpleConsumer, last func(*rmq.MessageView) (bool, error)) error {
	end := time.Now().Add(limit)
	for over := false; !over; {
		if time.Now().After(end) {
			return errors.New("not all came")
		}
		messages, err := consumer.Receive(context.Background(), 16, invisible)
		var status *rmq.ErrRpcStatus
		if errors.As(err, &status) && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
			continue
		}
		if err != nil {
			return err
		}
		for _, message := range messages {
			isLast, err := last(message)
			if err != nil {
				return err
			}
			over = over || isLast
		}
	}
	return nil
}

// What listeners saw.
type lines struct {
	lock sync.Mutex
	seen map[string]bool
}

func (l *lines) add(line string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[line] = true
}

func (l *lines) await(expected ...string) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		missing := 0
		l.lock.Lock()
		for _, line := range expected {
			if !l.seen[line] {
				missing++
			}
		}
		l.lock.Unlock()
		if missing == 0 {
			return nil
		}
	}
	return fmt.Errorf("not all came of %v", expected)
}

func main() {
	rmq.EnableSsl = false
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		words := strings.Fields(input.Text())
		each := &scenarios{endpoint: words[0], prefix: words[1]}
		if err := each.run(words[2:]); err != nil {
			failed("start", err)
		}
		note("done")
	}
}
