# A model that is larger than the memory of the machine, evaluated and continued
# why: the kernel kills such a process while it loads, without a word
# source: https://github.com/moby/moby/issues/21083
# before: 137, and no word
# expect: fsdp: this command needs
# expect: per rank, the limit is
# expect: the peak is in
# expect: generate: 12
# status: 12
model m mistral_window4
sed -i 's/"hidden_size": *[0-9]*/"hidden_size": 1048576/; s/"intermediate_size": *[0-9]*/"intermediate_size": 4194304/
  s/"num_hidden_layers": *[0-9]*/"num_hidden_layers": 8/; s/"vocab_size": 71/"vocab_size": 257/' m/config.json
echo "a text of some words" >text.txt
"$FSDP" generate m --ids 1,2 --tokens 2
echo "generate: $?"
"$FSDP" eval m --tokenizer bytes --data text.txt --sequence-length 8
