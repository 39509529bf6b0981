f() { local x=$1; case $x in 1*) y=${x#1};; *) y=$x;; esac; }
fib() { (($1 < 2)) && echo "$1" && return; echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); }
declare -A words
for i in {1..3000}; do f $((i * i)); printf -v z '%05d %s' "$i" "$y"; words[$((i % 97))]=$z; done
echo "${#words[@]} ${words[11]}"
fib 9
trap 'echo caught' USR1
for i in {1..20}; do kill -USR1 $$; done
trap - USR1
[[ "a$z" =~ a.*([0-9]) ]] && echo "${BASH_REMATCH[1]}"
while read -r a b; do echo "$b $a"; done < <(for i in {1..200}; do echo "$i $((i % 7))"; done) | sort | uniq -c | head -20
x=(a b c); x+=(d); echo "${x[@]:1:2}" "${x[-1]^^}" "${#x}"
(exit 3); echo $?
eval 'g() { echo "in $FUNCNAME"; unset -f g; }'; g; type g
set -- one two; shift; echo "$@"
printf '%s\n' {a..e}{1..3} | tr '\n' ' '
cat <<< "$(echo here)"
(echo ${undefined:?not there})
(( 1 / 0 ))
echo behind
